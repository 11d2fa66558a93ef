"""Noise in the shape of the scores: what a release looks like in coordinates where the scores' covariance is known.

``schedule``      which share of the budget each release gets, a rule of public numbers
``whitening``     rounds of private second moments, and the map W that they make
``glm``           the Hessian of a generalised linear model where its coefficients are known
``path``          what releases along a search say of the slope
``search``        Newton's method on noisy gradients, from the middle of the public box
``fit``           all of it in order, and the local models of the posterior

The releases are in :mod:`pgbb_fast.release.stacked`; nothing here sees a record.  docs/geometry.md has the mechanism,
its proof, and where each number comes from.
"""
