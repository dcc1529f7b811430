// Package connection tells whether a cluster's agent is connected to the hub: in the condition Connected of the management Cluster and of the
// Cluster, in AgentDeployed, and in status.agentConnected of the RKEControlPlane. It learns of sessions as they come and go, asks nobody in
// turn, and writes only when something has changed. It must not open connections itself.
package connection
