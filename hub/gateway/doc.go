// Package gateway is the hub's HTTPS front door for machines. It owns the listener and its certificates, the registration of
// machines and agents, the delivery of plan Secrets, and the downloads that an installation needs. It decides who may open a tunnel.
//
// What a machine may do here is decided by this package and not by the rights of its credentials at the Kubernetes API: whatever is
// not served explicitly is refused. Plan Secrets are read from one cache that all machines share. The gateway writes with the hub's
// own identity, and therefore only what it has checked: a machine's results, a machine's request to be registered, the hash of the
// secret by which a machine proves who it is, the TunnelAgent of an agent, and who has used a registration token.
//
// It must not decide what is in a plan, create Machines or their credentials, or answer anything from a cluster that the hub manages.
package gateway
