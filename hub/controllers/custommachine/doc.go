// Package custommachine reconciles the CustomMachine, a machine that a user brought. It finds the machine's Node in the cluster, copies the
// Node's provider ID and addresses to the CustomMachine, from where Cluster API reads them, and reports the machine as provisioned. Where
// the annotation rke.cattle.io/delete-missing-custom-machines-after of the RKECluster asks for it, it deletes Machines whose Node has been
// missing for that long: a custom machine is in no MachineSet, so that no other controller replaces it. Of a machine that was installed
// again, and has registered as another one with its Node, it lets the earlier Machine be deleted without the Node. It only reads the
// cluster.
package custommachine
