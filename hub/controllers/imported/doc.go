// Package imported finds out what the hub shows of clusters that were made elsewhere: their version and how many Nodes they have. While the agent
// of such a cluster is connected, its Nodes are watched through it; the version is read whenever that watch begins, since it ends when the
// cluster's API server is replaced. Nothing is asked in turn.
package imported
