package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// The names by which k3s and RKE2 tell of snapshots.
var (
	// NodeLabel holds the node that a snapshot is on.
	NodeLabel = flavour.Name("etcd.*.cattle.io/snapshot-storage-node")
	// TokenAnnotation holds the beginning of the hash of the token that a snapshot can be restored with.
	TokenAnnotation = flavour.Name("etcd.*.cattle.io/snapshot-token-hash")
	// MetadataConfigMap in kube-system holds what every snapshot shall keep beside it.
	MetadataConfigMap = flavour.Name("*-etcd-snapshot-extra-metadata")
)

// Object is an ETCDSnapshotFile.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ObjectSpec   `json:"spec"`
	Status            ObjectStatus `json:"status,omitzero"`
}

// NodeS3 stands for a node in the label of snapshots that are in a bucket.
const NodeS3 = "s3"

// ObjectSpec says where a snapshot is.
type ObjectSpec struct {
	SnapshotName string            `json:"snapshotName"`
	NodeName     string            `json:"nodeName"`
	Location     string            `json:"location"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	S3           *ObjectS3         `json:"s3,omitempty"`
}

// ObjectS3 says which bucket a snapshot is in, and how it is reached without a key.
type ObjectS3 struct {
	Endpoint      string `json:"endpoint,omitempty"`
	EndpointCA    string `json:"endpointCA,omitempty"`
	SkipSSLVerify bool   `json:"skipSSLVerify,omitempty"`
	Bucket        string `json:"bucket,omitempty"`
	Region        string `json:"region,omitempty"`
	Prefix        string `json:"prefix,omitempty"`
	Insecure      bool   `json:"insecure,omitempty"`
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

// Describe makes the object of a snapshot. node is this one, for those that are not in a bucket.
func Describe(f File, node string) Object {
	storage, kind := node, "local"
	if f.S3 != nil {
		storage, kind, node = NodeS3, NodeS3, cmp.Or(f.Node, NodeS3)
	}
	at, ready := metav1.NewTime(f.Created.UTC()), f.Fault == ""
	o := Object{
		TypeMeta:   metav1.TypeMeta{APIVersion: "k3s.cattle.io/v1", Kind: "ETCDSnapshotFile"},
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{NodeLabel: storage}},
		Spec:       ObjectSpec{SnapshotName: f.Name, NodeName: node, Location: f.Location, Metadata: f.Metadata, S3: f.S3},
		Status: ObjectStatus{Size: resource.NewQuantity(f.Size, resource.DecimalSI), CreationTime: &at,
			ReadyToUse: &ready},
	}
	if f.TokenHash != "" {
		o.Annotations = map[string]string{TokenAnnotation: f.TokenHash}
	}
	if ready && f.S3 == nil {
		o.Spec.Location = "file://" + f.Path
	}
	if !ready {
		o.Status.Error = &ObjectError{Time: &at, Message: &f.Fault}
	}
	o.Name = kind + "-" + objectName(f, node, o.Spec.Location)
	return o
}

// objectName is unique to a file: snapshots of one name may be on several nodes and in a bucket.
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
	return name + "-" + hex.EncodeToString(sum[:])[:6]
}
