// Package etcdsnapshot creates an ETCDSnapshot for every snapshot of etcd that a cluster lists. RKE2 and k3s list the snapshots on their
// nodes and in their bucket as ETCDSnapshotFiles of k3s.cattle.io/v1 in the cluster itself, which is gone when a snapshot is needed most.
//
// It writes ETCDSnapshots, their status included, and nothing else. An ETCDSnapshot without the annotation
// etcdsnapshot.rke.io/snapshot-name was created by a user, and stays as it is.
//
// What the cluster no longer lists is missing first, and deleted later: a control plane that has just started may not list all yet, and a
// snapshot on a node that is gone may be on a disk that somebody still has.
package etcdsnapshot
