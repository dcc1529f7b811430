// Package registration lets machines become known to a cluster. It keeps the token of every ClusterRegistrationToken and shows the command
// to run on machines, and it makes the Machine, RKEBootstrap and CustomMachine of every machine that the gateway asks for with a machine
// request. It never hands out a credential; the gateway does.
package registration
