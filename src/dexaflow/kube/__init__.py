"""Kubernetes' own rules for names, labels, tolerations, annotations and quantities. Pure."""
