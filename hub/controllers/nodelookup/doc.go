// Package nodelookup finds the Node of every CustomMachine in its cluster and writes the Node's provider ID and addresses to the
// CustomMachine, from where Cluster API takes them. It only reads the cluster; Nodes are watched, not polled.
package nodelookup
