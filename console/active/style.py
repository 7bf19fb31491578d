"""How the HTML report looks: colours by role for light and dark, and the style that uses them.

Text has a contrast of 4.5 or more against its ground in both (a test computes it); a severity is
always glyph and word as well.
"""

from __future__ import annotations

LIGHT = {
    "ground": "#ffffff", "ink": "#1c2126", "soft": "#5b6570", "rule": "#d5dbe1", "panel": "#f4f6f8",
    "critical": "#b3261e", "warn": "#8a5300", "unknown": "#7a3e8e", "info": "#1f5f8b",
    "ok": "#1c2126", "bar": "#7d97b0", "fine": "#dbe4ed",
}  # fmt: skip
DARK = {
    "ground": "#15191d", "ink": "#e4e8ec", "soft": "#a2adb8", "rule": "#343c44", "panel": "#1e242a",
    "critical": "#ff8a75", "warn": "#f0b354", "unknown": "#d5a6e6", "info": "#85bfe8",
    "ok": "#e4e8ec", "bar": "#5f7f9c", "fine": "#2c3945",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_SHAPE = """
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:62rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .3rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:0 0 .3rem}
p{margin:.3rem 0}.soft{color:var(--soft)}
dl{display:grid;grid-template-columns:7rem 1fr;gap:.1rem 1rem;margin:.3rem 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
section.verdict{border-left:4px solid var(--rule);background:var(--panel);padding:.6rem 1rem;
margin:.6rem 0;break-inside:avoid}
section.verdict.critical{border-color:var(--critical)}section.verdict.warn{border-color:var(--warn)}
section.verdict.unknown{border-color:var(--unknown)}section.verdict.info{border-color:var(--info)}
.critical{color:var(--critical)}.warn{color:var(--warn)}.unknown{color:var(--unknown)}
.info{color:var(--info)}.badge{font-weight:700;white-space:nowrap}
section.verdict{color:var(--ink)}
figure{margin:.5rem 0;break-inside:avoid}figcaption{color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.87rem;margin:.3rem 0}
caption{text-align:left;color:var(--soft)}
th,td{padding:.12rem .7rem .12rem 0;text-align:left;border-bottom:1px solid var(--rule);
vertical-align:top}
th{color:var(--soft);font-weight:600}
.right{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{background:var(--panel);padding:.6rem 1rem;white-space:pre-wrap;overflow-wrap:anywhere}
svg{width:100%;max-width:45rem;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .axis{fill:var(--soft);font-size:11px}svg .cell{font-size:10px}
svg .digit{font-size:9px;fill:var(--ground);pointer-events:none}
svg text.critical{fill:var(--critical)}svg text.warn{fill:var(--warn)}
svg text.unknown{fill:var(--unknown)}
.b,.h{fill:var(--bar)}.h.text{fill:var(--fine)}
.b.critical,.h.critical,circle.critical{fill:var(--critical)}
.b.warn,.h.warn{fill:var(--warn)}.b.unknown,.h.unknown{fill:var(--unknown)}
.grid{stroke:var(--rule)}.want{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3;fill:none}
.c{fill:none;stroke:var(--bar);stroke-width:1.2;opacity:.7}
.c.named{opacity:1;stroke-width:2.2}.c.critical{stroke:var(--critical)}.c.warn{stroke:var(--warn)}
.c.unknown{stroke:var(--unknown)}
img{image-rendering:pixelated;background:#fff;border:1px solid var(--rule);width:32rem;
max-width:100%}
@media print{body{max-width:none;padding:0;font-size:11px}a{color:inherit}}
"""

STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}{_SHAPE}"
)
"""On paper it is always light."""
