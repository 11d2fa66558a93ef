"""What users pass, as checked records.

``reading``   what a container holds, by its schema, and its numbers as an array
``records``   shapes, names and finiteness of features and response
``design``    public bounds, and the maps between natural units and the unit box
"""
