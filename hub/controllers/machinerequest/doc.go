// Package machinerequest reconciles machine requests: Secrets of the type rke.cattle.io/machine-request, which the gateway writes for every
// machine that registers. It creates the Machine, RKEBootstrap and CustomMachine of a new machine, finds those of a known one, and answers
// on the Secret. It hands out no credential; the gateway does.
package machinerequest
