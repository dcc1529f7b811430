package v1

// Annotations of rke.cattle.io on clusters, Secrets and templates.
const (
	// ClusterSpecAnnotation, on an RKEControlPlane, is base64(gzip(JSON)) of the Cluster's spec. Snapshots carry it.
	ClusterSpecAnnotation = "rke.cattle.io/cluster-spec"
	// ChosenEndpointsAnnotation, on an RKEControlPlane, lists the control plane endpoints (host:port, comma separated, newest first) that the
	// hub has chosen among machines for Cluster API. Kubeconfigs, certificates and plans do not use them.
	ChosenEndpointsAnnotation = "rke.cattle.io/chosen-endpoints"
	// CertificateAuthoritiesAnnotation, on an RKEControlPlane, is "true" once the hub has had the cluster's certificate authorities: their
	// Secrets must not be lost.
	CertificateAuthoritiesAnnotation = "rke.cattle.io/certificate-authorities"
	// UnrestoredConfigurationAnnotation, on an RKEControlPlane, is the etcdSnapshotRestore (name, a slash, generation) for which its
	// configuration was set to that of the snapshot, while the data of the snapshot is not restored: changes that restart machines are held
	// back. It is empty once the data is restored, or etcdSnapshotRestore was removed from the spec.
	UnrestoredConfigurationAnnotation = "rke.cattle.io/unrestored-configuration"
	// VersionCheckedAnnotation, on an RKEControlPlane, is a time (RFC 3339). Where the hub was restored from a backup then or before, it is
	// known that the cluster was not upgraded after the backup. Users may set it where the hub cannot reach the cluster.
	VersionCheckedAnnotation = "rke.cattle.io/version-checked"
	// ConfigGenerationAnnotation, on an RKEControlPlane, is its status.configGeneration, which a move or a restored backup leaves behind.
	ConfigGenerationAnnotation = "rke.cattle.io/config-generation"
	// KubeconfigMovedAnnotation, on a kubeconfig Secret, is the time (RFC 3339) at which its server was last replaced by another, because the
	// one before did not answer.
	KubeconfigMovedAnnotation = "rke.cattle.io/kubeconfig-moved"
	// AuthorizedObjectAnnotation, on a Secret or ConfigMap, lists the Clusters of its namespace (comma separated) that may use it as a file
	// source and, with SyncBootstrapAnnotation, those that have the Secret from their start.
	AuthorizedObjectAnnotation = "rke.cattle.io/object-authorized-for-clusters"
	// AuthorizedSecretAnnotation, on a Secret, lists the Clusters (comma separated) that may use it: by name those of its namespace, by
	// namespace/name those of any.
	AuthorizedSecretAnnotation = "v2prov-secret-authorized-for-cluster"
	// DeleteMissingCustomMachinesAfterAnnotation is a duration after which a CustomMachine without a Node is deleted. Users set it on the
	// Cluster; the hub copies it to the RKECluster.
	DeleteMissingCustomMachinesAfterAnnotation = "rke.cattle.io/delete-missing-custom-machines-after"
	// BootstrapTokenHashAnnotation, on a plan Secret, is the hash of the token with which the machine registers.
	BootstrapTokenHashAnnotation = "rke.cattle.io/bootstrap-token-hash"
	// BootstrapTokenAnnotation is "true" on the token Secret of a bootstrap ServiceAccount, which earlier hubs created.
	BootstrapTokenAnnotation = "rke.cattle.io/bootstrap-token"
	// BootstrapTokenInvalidatedAnnotation, "true" on an RKEBootstrap, or on such a Secret or its account, ends the bootstrap token.
	BootstrapTokenInvalidatedAnnotation = "rke.cattle.io/bootstrap-token-invalidated"
	// ClonedFromGroupVersionAnnotation, on a machine template, is the API version of the machine configuration it was created from.
	ClonedFromGroupVersionAnnotation = "rke.cattle.io/cloned-from-group-version"
	// ClonedFromKindAnnotation is the kind of that object.
	ClonedFromKindAnnotation = "rke.cattle.io/cloned-from-kind"
	// ClonedFromNameAnnotation is the name of that object.
	ClonedFromNameAnnotation = "rke.cattle.io/cloned-from-name"
	// ClonedFromRevisionAnnotation is the UID and generation of the machine template that a copy was made from.
	ClonedFromRevisionAnnotation = "rke.cattle.io/cloned-from-revision"
	// ClonedFromContentAnnotation is a hash of the content of that object, on a copy that has other fields and counts as up to date.
	ClonedFromContentAnnotation = "rke.cattle.io/cloned-from-content"
	// AppliedQuantityAnnotation, on a MachineDeployment, is the quantity of its pool that the hub last wrote.
	AppliedQuantityAnnotation = "rke.cattle.io/applied-quantity"
	// AutoscaledAnnotation, on a MachineDeployment, is "true" where an autoscaler decides its replicas, and not the quantity of its pool.
	AutoscaledAnnotation = "rke.cattle.io/autoscaled"
	// MachineTemplatesAnnotation, on a MachineDeployment, lists the machine templates that the hub created for its pool, as Kind.group/name.
	MachineTemplatesAnnotation = "rke.cattle.io/machine-templates"
)

// Annotations of provisioning.cattle.io.
const (
	// ManagementClusterNameAnnotation names the management Cluster of a Cluster. The hub writes it before it creates the management Cluster.
	ManagementClusterNameAnnotation = "provisioning.cattle.io/management-cluster-name"
	// SpecRestoredAnnotation, on a Cluster of provisioning.cattle.io, is the etcdSnapshotRestore (name, a slash, generation) for which its
	// spec was last set to that of the snapshot.
	SpecRestoredAnnotation = "rke.cattle.io/spec-restored"
	// ClusterUIDAnnotation is the UID of the Cluster that an object was created for. A Cluster that was moved or restored has another.
	ClusterUIDAnnotation = "provisioning.cattle.io/cluster-uid"
	// ClusterAutoscalerEnabledAnnotation, set by users on a Cluster, is copied to the Cluster of Cluster API for the cluster autoscaler.
	ClusterAutoscalerEnabledAnnotation = "provisioning.cattle.io/cluster-autoscaler-enabled"
	// ClusterAutoscalerPausedAnnotation is copied likewise.
	ClusterAutoscalerPausedAnnotation = "provisioning.cattle.io/cluster-autoscaler-paused"
	// PrimeEnabledAnnotation, "true" or "false" on a Cluster, overrides the hub's --rke2-prime for it.
	PrimeEnabledAnnotation = "provisioning.cattle.io/rke2-prime-enabled"
	// RenewCertificatesAnnotation, "false" on a Cluster, keeps the hub from replacing certificates that end soon. It is copied to
	// the RKEControlPlane.
	RenewCertificatesAnnotation = "provisioning.cattle.io/renew-certificates"
	// SyncBootstrapAnnotation, "true" on a Secret, has the Secret written to the cluster by its first plan.
	SyncBootstrapAnnotation = "provisioning.cattle.io/sync-bootstrap"
	// SyncTargetNamespaceAnnotation is the namespace of that Secret in the cluster. Default: the namespace it has in the management cluster.
	SyncTargetNamespaceAnnotation = "provisioning.cattle.io/sync-target-namespace"
	// SyncTargetNameAnnotation is the name of that Secret in the cluster. Default: the name it has in the management cluster.
	SyncTargetNameAnnotation = "provisioning.cattle.io/sync-target-name"
)

// Annotations of etcdsnapshot.rke.io, on ETCDSnapshots that the hub created for what a cluster lists.
const (
	// SnapshotNameAnnotation is the name of the ETCDSnapshotFile in the cluster.
	SnapshotNameAnnotation = "etcdsnapshot.rke.io/snapshot-name"
	// SnapshotFileNameAnnotation is the name of the file, or of the object in a bucket.
	SnapshotFileNameAnnotation = "etcdsnapshot.rke.io/snapshot-file-name"
	// SnapshotSHA256Annotation, on an ETCDSnapshot, is the checksum of the file when it was saved, as hexadecimal digits. Snapshots that the
	// cluster has saved on its schedule have none.
	SnapshotSHA256Annotation = "etcdsnapshot.rke.io/sha256"
	// SnapshotTokenHashAnnotation, on an ETCDSnapshot, is the beginning of the SHA-256 of the server token that the cluster had when the
	// snapshot was saved, as hexadecimal digits. RKE2 and k3s write it on the ETCDSnapshotFile, and into the metadata of a copy in S3.
	SnapshotTokenHashAnnotation = "etcdsnapshot.rke.io/token-hash"
	// SnapshotStorageAnnotation is SnapshotStorageLocal or SnapshotStorageS3.
	SnapshotStorageAnnotation = "etcdsnapshot.rke.io/storage"
)

// Values of SnapshotStorageAnnotation.
const (
	// SnapshotStorageLocal is of a snapshot on a machine.
	SnapshotStorageLocal = "local"
	// SnapshotStorageS3 is of a snapshot in a bucket.
	SnapshotStorageS3 = "s3"
)
