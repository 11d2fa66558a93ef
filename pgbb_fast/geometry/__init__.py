"""Noise in the shape of the scores: what a release looks like in coordinates where the scores' covariance is known.

``stacking``      the public constants: how the rules' scores are mixed, and how long a stacked score can be
``schedule``      which share of the budget each release gets, a rule of public numbers
``door``          the releases themselves, the only functions here that see records
``whitening``     rounds of private second moments, and the map W that they make
``glm``           the Hessian of a generalised linear model where its coefficients are known
``path``          what releases along a search say of the slope
``search``        Newton's method on noisy gradients, from the middle of the public box
``fit``           all of it in order, and the local models of the posterior

docs/geometry.md has the mechanism, its proof, and where each number comes from.
"""
