"""Tests of the screen: state and messages by Pilot, text goldens, a real terminal by tmux."""
