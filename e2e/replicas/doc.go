// Package replicas holds the test of a hub that has several replicas, behind the build tag e2e: `make e2e`. It runs them as processes on
// one Kubernetes API, behind a load balancer, with cluster-agents that hold tunnels to two of them, and takes one replica after the other
// away: by a kill, by stopping it as a frozen machine would, and in order. It needs neither root nor hosts of its own.
package replicas
