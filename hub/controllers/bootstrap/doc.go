// Package bootstrap reconciles the RKEBootstrap: it makes the machine's identity towards the hub (a ServiceAccount that may read and write
// one plan Secret and nothing else), the plan Secret itself, and the bootstrap data with which the machine installs its agent. It never
// writes a plan.
package bootstrap
