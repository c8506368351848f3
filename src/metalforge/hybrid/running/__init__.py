"""Plans on devices: a plan and inputs go in, outputs and statistics come out; a device may fail on the way."""
