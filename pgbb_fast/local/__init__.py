"""What the releases say: local models of the loss around its optimum.  Sees releases, never records.

``exploration``  where gradients over blocks are asked for
``statistics``   streaming sufficient statistics of those releases
``curvature``    what is known of the Hessian of a rule: its own slope with an error, and a shape it should have
``prior``        a normal prior of theta
``model``        location, Hessian and scores' covariance given that the noise's law is known
"""
