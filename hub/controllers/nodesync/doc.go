// Package nodesync carries labels and taints from machines to their Nodes, for as long as they live: a kubelet takes taints only when its Node
// registers, and the distributions apply the labels of their configuration (node-label) only when they start. Workers get the label of
// their role. Taints of the configuration (node-taint) are not carried: many of those are taken off by whoever makes the Node usable. What was carried and is no longer wanted is taken away again; what others have set on a Node is never touched.
package nodesync
