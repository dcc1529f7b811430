// Package nodesync syncs labels and taints of machines to their Nodes, for as long as they exist: a kubelet sets taints only when it
// registers its Node, and the distributions set the labels of their configuration (node-label) only when they start. Workers get the label
// of their role. Taints of the configuration (node-taint) are not synced: many of those are removed by components that make the Node
// usable. What was synced and is no longer wanted is removed; what others have set on a Node is not changed. Of
// two Machines that name one Node, that whose label the Node has counts. A Node that was cordoned for a drain in a snapshot that was
// restored is uncordoned.
package nodesync
