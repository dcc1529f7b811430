// Package gateway is the hub's HTTPS listener for machines, agents and downloads. It owns the table of routes, the policy of who may call
// an endpoint and how often, and the order in which a replica stops. What an endpoint does is in the packages below it:
//
//   - registration: registering machines, and import manifests
//   - plandelivery: plan Secrets
//   - agentsession: credentials and tunnels of agents
//   - downloads: agents and scripts
//   - secretcache: the Secrets that these work with
//   - servingcert: the listener's certificates
//
// Whatever is not in the table is refused. The gateway must not decide what is in a plan, create Machines or their credentials, or answer
// anything from a cluster that the hub manages.
package gateway
