// Package userauth finds out who a person or a program is that calls the gateway: by a token of the hub's own, by a client certificate of
// the management cluster, or by a token that the management cluster knows. It also says under which name a user of the management cluster
// is known in the clusters that the hub manages.
//
// It must not decide what somebody may do; machines and agents are the gateway's own affair.
package userauth
