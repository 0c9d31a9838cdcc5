"""Headway: SQL on Spark that keeps the progress it has made."""
