// Package rkebootstrap reconciles the RKEBootstrap. It creates the machine's identity (a ServiceAccount that may use one plan Secret), the
// plan Secret, and the bootstrap data with which the machine installs its agent. It does not write plans.
package rkebootstrap
