"""Line-API widgets: each compares what it drew with what it should draw, and repaints that."""
