"""caps inside other tools; each module needs its tool and is imported only where that is used."""
