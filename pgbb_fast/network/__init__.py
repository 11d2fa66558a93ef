"""All that needs torch: the generator G(u) -> theta, and how it is trained or fitted.

``generator``, ``networks``   the network, and several of them with hand-written derivatives
``training``                  on noisy gradients (the paper's method)
``device_training``           the same as one CUDA graph
``distillation``              fitted to the releases' local model, as post-processing
"""
