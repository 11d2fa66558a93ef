"""THE door: everything that is computed from records and leaves the package leaves through one of these modules.

``blocked``      noisy steps and second moments over blocks with Dirichlet weights; the keys of a fit
``stacked``      noise in the shape of the scores: features' moment, stacked steps, the scores' moment
``hessian``      a mean Hessian, for Newton's method
``resamples``    an estimate with a stated sensitivity, and its bootstrap replicates
``medians``      medians over disjoint subsets, by the exponential mechanism
``on_gpu``       a blocked step whose arguments and result stay on the GPU
``stacking``     public constants of stacked scores
``statistic``    what a bootstrap may release
``blocks``, ``resampling``   random partitions and resamples, drawn without looking at a record
``devices``      where the kernels run

No other room imports a kernel that reads records (``tests/test_architecture.py``).
"""
