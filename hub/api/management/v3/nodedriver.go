package v3

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FileFieldsAnnotation, on a NodeDriver, names the flags of the driver that take the path of a file, as <field>:<field of the flag>, with
// commas between them, such as sshKeyContents:sshKeypath. The first is the field that the driver's kinds have instead of the second, and
// takes the content of the file. Rancher writes it.
const FileFieldsAnnotation = "nodedriver.cattle.io/file-to-field-aliases"

// NodeDriver is a driver of Docker Machine, a program that makes machines at a cloud. While it is active, the kinds <Driver>Config of
// rke-machine-config.cattle.io and <Driver>Machine and <Driver>MachineTemplate of rke-machine.cattle.io exist, with the driver's create
// flags as fields, and pools may name a <Driver>Config. The hub runs the program in a sandbox. Who may create NodeDrivers is an
// administrator.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodedrivers,scope=Cluster
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=infrastructure-drover","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.driverName`,description="Name of the driver, with which its flags begin"
// +kubebuilder:printcolumn:name="Active",type=boolean,JSONPath=`.spec.active`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || !has(oldSelf.spec)",message="spec cannot be removed"
type NodeDriver struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec NodeDriverSpec `json:"spec,omitempty"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status NodeDriverStatus `json:"status,omitempty"`
}

// NodeDriverSpec says where the driver comes from. An inactive driver may have any of it: manifests in the field do.
//
// +kubebuilder:validation:XValidation:rule="!self.?active.orValue(false) || self.?builtin.orValue(false) || has(self.url) && self.url.startsWith('https://')",message="spec.url must be an https URL; or set spec.builtin for a driver in the hub's --node-driver-dir"
// +kubebuilder:validation:XValidation:rule="!self.?active.orValue(false) || self.?builtin.orValue(false) && !(has(self.url) && self.url.startsWith('https://')) || has(self.checksum) && self.checksum.matches('^([0-9a-fA-F]{64}|[0-9a-fA-F]{128})$')",message="spec.checksum must be the SHA-256 or SHA-512 of the file at spec.url, in hex"
// +kubebuilder:validation:XValidation:rule="has(self.displayName) == has(oldSelf.displayName) && (!has(self.displayName) || self.displayName == oldSelf.displayName)",message="spec.displayName cannot be changed: the driver's kinds are named for it"
type NodeDriverSpec struct {
	// DisplayName is the name of the driver, such as digitalocean; case does not matter. Unset means metadata.name.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	DisplayName string `json:"displayName,omitempty"`
	// Active drivers have their kinds and can create machines. Machines of an inactive driver can be deleted.
	// +optional
	Active bool `json:"active,omitempty"`
	// Builtin drivers are in the directory that the hub's flag --node-driver-dir names: docker-machine-driver-<name>, or rancher-machine for
	// the drivers that are part of it. With an https URL it has no effect.
	// +optional
	Builtin bool `json:"builtin,omitempty"`
	// URL is that of the program, or of an archive (.tar.gz, .zip) that holds it. For builtin drivers it may be local://, which says nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// Checksum is the SHA-256 or SHA-512, in hex, of the file at URL.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Checksum string `json:"checksum,omitempty"`
	// Description has no effect. Like the fields after it, it is part of manifests that were exported from Rancher, whose user interface
	// uses it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`
	// UIURL has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	UIURL string `json:"uiUrl,omitempty"`
	// ExternalID has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ExternalID string `json:"externalId,omitempty"`
	// WhitelistDomains have no effect.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	WhitelistDomains []string `json:"whitelistDomains,omitempty"`
	// AddCloudCredential has no effect: every driver takes cloud credentials.
	// +optional
	AddCloudCredential bool `json:"addCloudCredential,omitempty"`
}

// NodeDriverStatus is what the hub found.
type NodeDriverStatus struct {
	// Conditions: Ready, Downloaded, Installed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// DriverName is the name of the driver, with which its flags begin.
	// +optional
	DriverName string `json:"driverName,omitempty"`
	// Checksum is the SHA-256 of the program whose flags the driver's kinds have.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Conditions of NodeDrivers, beside Ready.
const (
	// NodeDriverDownloaded is true when the program is there.
	NodeDriverDownloaded = "Downloaded"
	// NodeDriverInstalled is true when the driver's flags were read and its kinds are served.
	NodeDriverInstalled = "Installed"
)

// GetConditions returns the conditions of the status.
func (d *NodeDriver) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (d *NodeDriver) SetConditions(conditions []metav1.Condition) { d.Status.Conditions = conditions }

// NodeDriverList is a list of NodeDriver.
//
// +kubebuilder:object:root=true
type NodeDriverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []NodeDriver `json:"items"`
}
