"""Echo state networks with their product on an NPU: weights and a device go in, a network that is stepped comes out."""
