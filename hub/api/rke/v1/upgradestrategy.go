package v1

// ClusterUpgradeStrategy tells how many nodes change at a time, and how they are drained first.
type ClusterUpgradeStrategy struct {
	// ControlPlaneConcurrency is how many control-plane nodes may change at a time: a number, or a percentage such as 10%. Empty means 1,
	// 0 means all.
	// +optional
	ControlPlaneConcurrency Concurrency `json:"controlPlaneConcurrency,omitempty"`
	// ControlPlaneDrainOptions is how control-plane nodes are drained.
	// +optional
	ControlPlaneDrainOptions DrainOptions `json:"controlPlaneDrainOptions,omitempty,omitzero"`
	// WorkerConcurrency is how many workers may change at a time.
	// +optional
	WorkerConcurrency Concurrency `json:"workerConcurrency,omitempty"`
	// WorkerDrainOptions is how workers are drained.
	// +optional
	WorkerDrainOptions DrainOptions `json:"workerDrainOptions,omitempty,omitzero"`
}

// Concurrency is a number or a percentage.
//
// +kubebuilder:validation:MaxLength=10
// +kubebuilder:validation:Pattern=`^$|^[0-9]+%?$`
type Concurrency string

// DrainOptions is how a node is drained before its distribution restarts.
type DrainOptions struct {
	// Enabled drains nodes; hooks are honoured in either case.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// Force drains Pods that no controller manages.
	// +optional
	Force bool `json:"force,omitempty"`
	// IgnoreDaemonSets leaves Pods of DaemonSets where they are; unset means true.
	// +optional
	// +nullable
	IgnoreDaemonSets *bool `json:"ignoreDaemonSets,omitempty"`
	// IgnoreErrors goes on when a Pod could not be drained.
	// +optional
	IgnoreErrors bool `json:"ignoreErrors,omitempty"`
	// DeleteEmptyDirData drains Pods with emptyDir volumes; their data is lost.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`
	// DisableEviction deletes Pods, past their disruption budgets.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
	// GracePeriod is in seconds; unset, 0 and less mean the Pod's own.
	// +optional
	GracePeriod int `json:"gracePeriod,omitempty"`
	// Timeout is in seconds; 0 means 600.
	// +optional
	Timeout int `json:"timeout,omitempty"`
	// SkipWaitForDeleteTimeoutSeconds does not wait for Pods that are being deleted for longer than that.
	// +optional
	SkipWaitForDeleteTimeoutSeconds int `json:"skipWaitForDeleteTimeoutSeconds,omitempty"`
	// PreDrainHooks must be answered before a drain.
	// +optional
	// +nullable
	PreDrainHooks []DrainHook `json:"preDrainHooks,omitempty"`
	// PostDrainHooks must be answered before a node takes Pods again.
	// +optional
	// +nullable
	PostDrainHooks []DrainHook `json:"postDrainHooks,omitempty"`
}

// DrainHook is an annotation that somebody else sets on the plan Secret to let the drain go on.
type DrainHook struct {
	// Annotation is the key; its value must become that of the annotation rke.cattle.io/pre-drain or rke.cattle.io/post-drain.
	// +optional
	// +nullable
	Annotation string `json:"annotation,omitempty"`
}
