// Package clusterspec encodes the specification of a Cluster for snapshots of its etcd, and decodes it from them. Whoever administers a
// cluster writes its snapshots, so that what is decoded is no more trustworthy than a user's input.
package clusterspec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// MetadataKey is the key of the specification in the metadata of a snapshot.
const MetadataKey = "provisioning-cluster-spec"

// maxSpec bounds a specification that is decoded, in bytes.
const maxSpec = 4 << 20

// Encode returns base64(gzip(JSON)) of a specification without operations.
func Encode(spec provisioningv1.ClusterSpec) (string, error) {
	spec = *spec.DeepCopy()
	if spec.RKEConfig != nil {
		withoutOperations(spec.RKEConfig)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encoding the Cluster's spec: %w", err)
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(raw); err != nil {
		return "", fmt.Errorf("packing the Cluster's spec: %w", err)
	}
	if err := writer.Close(); err != nil {
		return "", fmt.Errorf("packing the Cluster's spec: %w", err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// restored are the fields that a restore reads. Others have quantities: to parse one takes hours if its exponent is long.
type restored struct {
	KubernetesVersion string                    `json:"kubernetesVersion"`
	AgentEnvVars      []rkev1.EnvVar            `json:"agentEnvVars"`
	RKEConfig         *provisioningv1.RKEConfig `json:"rkeConfig"`
}

// Decode returns what was encoded of the fields that a restore reads, without operations.
func Decode(encoded string) (*provisioningv1.ClusterSpec, error) {
	packed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decoding the Cluster's spec: %w", err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking the Cluster's spec: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(reader, maxSpec+1))
	if err != nil {
		return nil, fmt.Errorf("unpacking the Cluster's spec: %w", err)
	}
	if len(raw) > maxSpec {
		return nil, errors.New("unpacking the Cluster's spec: it is too large")
	}
	var had restored
	if err := json.Unmarshal(raw, &had); err != nil {
		return nil, fmt.Errorf("decoding the Cluster's spec: %w", err)
	}
	spec := &provisioningv1.ClusterSpec{KubernetesVersion: had.KubernetesVersion, AgentEnvVars: had.AgentEnvVars, RKEConfig: had.RKEConfig}
	if spec.RKEConfig != nil {
		withoutOperations(spec.RKEConfig)
	}
	return spec, nil
}

// FromSnapshot returns the specification in the metadata of an ETCDSnapshot, which is the base64 of a JSON object; nil where it has none.
func FromSnapshot(metadata string) (*provisioningv1.ClusterSpec, error) {
	if metadata == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(metadata)
	if err != nil {
		return nil, fmt.Errorf("decoding the metadata of the snapshot: %w", err)
	}
	var values map[string]string
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("decoding the metadata of the snapshot: %w", err)
	}
	if values[MetadataKey] == "" {
		return nil, nil
	}
	return Decode(values[MetadataKey])
}

func withoutOperations(config *provisioningv1.RKEConfig) {
	config.ETCDSnapshotCreate = nil
	config.ETCDSnapshotRestore = nil
	config.RotateCertificates = nil
	config.RotateEncryptionKeys = nil
}
