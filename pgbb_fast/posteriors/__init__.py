"""Released posteriors: draws, bands, intervals, save and load.  No records, and no way to them.

``base``         what every posterior does
``noise_aware``  draws given the privacy noise's known law (the default)
``generator``    outputs of a network at fresh Dirichlet weights
``bootstrap``, ``deconvolved``, ``little``, ``sampled``   those of the bootstraps and the baselines
``kinds``        which class a saved posterior is of
``summary``      tables of means, standard deviations and intervals

A new posterior is one class here and one line in ``kinds``.
"""
