package v1

// ETCDSnapshotCreate takes a snapshot when its generation changes.
type ETCDSnapshotCreate struct {
	// Generation is any number other than the last one.
	// +optional
	Generation int `json:"generation,omitempty"`
}

// ETCDSnapshotRestore restores a snapshot when it changes.
type ETCDSnapshotRestore struct {
	// Name of the ETCDSnapshot.
	// +optional
	Name string `json:"name,omitempty"`
	// Generation is any number other than the last one.
	// +optional
	Generation int `json:"generation,omitempty"`
	// RestoreRKEConfig tells how much of the Cluster's configuration comes back too; empty means none.
	// +optional
	// +kubebuilder:validation:Enum="";none;kubernetesVersion;all
	RestoreRKEConfig string `json:"restoreRKEConfig,omitempty"`
}

// RotateCertificates makes new certificates when its generation changes.
type RotateCertificates struct {
	// Generation is any number other than the last one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Services are whose certificates; none means all.
	// +optional
	// +listType=set
	// +nullable
	Services []CertificateService `json:"services,omitempty"`
}

// CertificateService is a service whose certificates can be rotated on its own.
//
// +kubebuilder:validation:Enum=admin;api-server;controller-manager;scheduler;rke2-controller;k3s-controller;rke2-server;k3s-server;cloud-controller;etcd;auth-proxy;kubelet;kube-proxy;supervisor
type CertificateService string

// RotateEncryptionKeys makes a new key for Secrets at rest when its generation changes.
type RotateEncryptionKeys struct {
	// Generation is any number other than the last one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}
