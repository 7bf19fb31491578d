"""THE PAYLOAD: what runs on the node. Python 3.6 syntax, the standard library and pynvml.

Wire protocol. The bastion runs one loader command per node, writes the payload header and body to
its stdin, then control lines. The node answers on stdout.

Node -> bastion: one line per frame, `MARKER SP JSON LF`; MARKER is random per session. Anything
else on stdout is noise. Frame kinds ("k"):
  hello   {"k":"hello","v":1,"host":str,"python":"3.6.15","pid":int,"uid":int,"boot_id":str,
           "boot_wall":float,"wall":float,"mono":float,"kernel":str,"os":str,
           "caps":[probe names that will run],"missing":{"kernel_log":"why and what to do"}}
  s       {"k":"s","p":probe,"t":mono_s,"d":{device:{metric:scalar}},"r":[row,...]}  one tick.
          "t" is when its readings were complete: rates over two answers are right to a few ms.
          "on" names the device that the rows are about, where it is not "".
          "at":{device: mono_s} holds devices read more than 50 ms before that (another one hung).
          "d" holds each device that answered; "gone":[device] those that vanished since last tick.
          A device whose call failed carries "nvml_rc":15,"nvml_call":"nvmlDeviceGetTemperature".
          "cut":n says that n rows were left out to stay under the frame cap (256 KiB).
  hung    {"k":"hung","p":probe,"dev":device,"call":"nvmlDeviceGetPowerUsage","since":mono,"t":mono}
          repeated every 5 s while it lasts; {"k":"unhung","p":probe,"dev":device,"t":mono} after.
  err     {"k":"err","p":probe,"text":str,"t":mono}  a probe failed as a whole; the others go on.
  job     {"k":"job","id":str,"state":"started|progress|done|failed|refused","text":str,"rc":int}
  blob    {"k":"blob","id":str,"f":file name,"z":base64(zlib(chunk)),"end":true,"note":str}  a piece
          of a file that a job collected, in order; "end" and "note" with the last one.
  end     {"k":"end","t":mono}  pass mode is over; the agent exits 0.

Bastion -> node, one JSON object per line after the payload (EOF ends agent and children in 1 s):
  {"op":"run","id":str,"what":"nccl"|"gpu_test"|"evidence","args":{...}}   {"op":"cancel","id":str}
  {"op":"intervals","fast_s":2.0,"slow_s":30.0,"rare_s":300.0}
  {"op":"nvml","id":str,"open":bool}   false: NVML probes pause and NVML is shut down, so that a GPU
      can be reset; true: they go on. Answered by a job frame of that id, done or failed.

The config travels with the payload: {"marker":str,"mode":"watch"|"pass","window_s":1.0,
"fast_s":2.0,"slow_s":30.0,"rare_s":300.0,"root":"/","deadline_s":5.0,"probes":[names] or null}.
Pass mode: every probe once, window_s after its answer each probe with COUNTERS once more, then
`end`. A probe that hangs past the deadline is reported hung and does not delay `end`. No frame of a
pass is left out, however slowly the bastion reads.

Optional in a module: `prepare(ctx)` before hello (quick, no driver call) may fill ctx.missing; a
"stream" module has `follow(ctx, emit)` for watch mode, where emit(devices, rows) sends.

Probe module contract: NAME, INTERVAL ("fast"|"slow"|"rare"|"stream"), COUNTERS (bool: sampled
twice in a pass), METRICS {metric: (unit, kind, help)} with kind gauge|counter|info, and
`collect(ctx)` -> (devices: dict, rows: list). ctx gives root paths, the shared NVML object, clocks.
"""
