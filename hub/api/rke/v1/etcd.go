package v1

// ETCD configures snapshots.
type ETCD struct {
	// DisableSnapshots takes none on a schedule.
	// +optional
	DisableSnapshots bool `json:"disableSnapshots,omitempty"`
	// SnapshotScheduleCron is when they are taken.
	// +optional
	// +nullable
	SnapshotScheduleCron string `json:"snapshotScheduleCron,omitempty"`
	// SnapshotRetention is how many are kept.
	// +optional
	SnapshotRetention int `json:"snapshotRetention,omitempty"`
	// S3 is where copies go.
	// +optional
	// +nullable
	S3 *ETCDSnapshotS3 `json:"s3,omitempty"`
}

// ETCDSnapshotS3 is a bucket for snapshots.
type ETCDSnapshotS3 struct {
	// Endpoint is host and port.
	// +optional
	// +nullable
	Endpoint string `json:"endpoint,omitempty"`
	// EndpointCA is a PEM certificate to trust, or its base64.
	// +optional
	// +nullable
	EndpointCA string `json:"endpointCA,omitempty"`
	// SkipSSLVerify trusts any certificate.
	// +optional
	SkipSSLVerify bool `json:"skipSSLVerify,omitempty"`
	// Bucket is its name.
	// +optional
	// +nullable
	Bucket string `json:"bucket,omitempty"`
	// Region of the bucket.
	// +optional
	// +nullable
	Region string `json:"region,omitempty"`
	// CloudCredentialName names the Secret with the keys, as "namespace:name" or as a name in the Cluster's namespace.
	// +optional
	// +nullable
	CloudCredentialName string `json:"cloudCredentialName,omitempty"`
	// Folder within the bucket.
	// +optional
	// +nullable
	Folder string `json:"folder,omitempty"`
	// Retention is how many are kept in the bucket.
	// +optional
	Retention int `json:"retention,omitempty"`
}
