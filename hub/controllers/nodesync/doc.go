// Package nodesync carries labels and taints from machines to their Nodes, for as long as they live: a kubelet takes them only when its Node
// registers. What was carried and is no longer wanted is taken away again; what others have set on a Node is never touched.
package nodesync
