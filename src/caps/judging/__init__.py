"""Who answers asks: judges of several kinds."""
