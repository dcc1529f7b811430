package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The names by which k3s tells of snapshots.
const (
	// NodeLabel holds the node that a snapshot is on.
	NodeLabel = "etcd.k3s.cattle.io/snapshot-storage-node"
	// TokenAnnotation holds the beginning of the hash of the token that a snapshot can be restored with.
	TokenAnnotation = "etcd.k3s.cattle.io/snapshot-token-hash"
	// MetadataConfigMap in kube-system holds what every snapshot shall keep beside it.
	MetadataConfigMap = "k3s-etcd-snapshot-extra-metadata"
)

// Object is an ETCDSnapshotFile.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ObjectSpec   `json:"spec"`
	Status            ObjectStatus `json:"status,omitzero"`
}

// ObjectSpec says where a snapshot is.
type ObjectSpec struct {
	SnapshotName string            `json:"snapshotName"`
	NodeName     string            `json:"nodeName"`
	Location     string            `json:"location"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

// ObjectStatus says what a snapshot is.
type ObjectStatus struct {
	Size         *resource.Quantity `json:"size,omitempty"`
	CreationTime *metav1.Time       `json:"creationTime,omitempty"`
	ReadyToUse   *bool              `json:"readyToUse,omitempty"`
	Error        *ObjectError       `json:"error,omitempty"`
}

// ObjectError says why a snapshot could not be taken.
type ObjectError struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message *string      `json:"message,omitempty"`
}

// List is what etcd-snapshot list prints.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Object `json:"items"`
}

// Describe makes the object of a snapshot that is on a node.
func Describe(f File, node string) Object {
	at, ready := metav1.NewTime(f.Created.UTC()), f.Fault == ""
	o := Object{
		TypeMeta:   metav1.TypeMeta{APIVersion: "k3s.cattle.io/v1", Kind: "ETCDSnapshotFile"},
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{NodeLabel: node}},
		Spec:       ObjectSpec{SnapshotName: f.Name, NodeName: node, Metadata: f.Metadata},
		Status: ObjectStatus{Size: resource.NewQuantity(f.Size, resource.DecimalSI), CreationTime: &at,
			ReadyToUse: &ready},
	}
	if f.TokenHash != "" {
		o.Annotations = map[string]string{TokenAnnotation: f.TokenHash}
	}
	if ready {
		o.Spec.Location = "file://" + f.Path
	} else {
		o.Status.Error = &ObjectError{Time: &at, Message: &f.Fault}
	}
	o.Name = objectName(f, node, o.Spec.Location)
	return o
}

// objectName is unique to a file: snapshots of one name may be on several nodes.
func objectName(f File, node, location string) string {
	name := strings.ToLower(f.Name)
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(name)+13 > validation.DNS1123SubdomainMaxLength {
		short, _, _ := strings.Cut(node, ".")
		name = fmt.Sprintf("etcd-snapshot-%s-%d", short, f.Created.Unix())
		if strings.HasSuffix(f.Name, Compressed) {
			name += Compressed
		}
	}
	sum := sha256.Sum256([]byte(node + location))
	return "local-" + name + "-" + hex.EncodeToString(sum[:])[:6]
}
