// Package custommachine reconciles the CustomMachine, a machine that a user brought. Such a machine is provisioned once its Node was seen;
// the controller nodelookup finds the Node and writes its provider ID, this one tells Cluster API.
package custommachine
