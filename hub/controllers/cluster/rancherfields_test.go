package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWithoutRancher: the hub owns all of the specification, and Rancher its metadata and what a Cluster does not have.
func TestWithoutRancher(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "rke.cattle.io/v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	own := entry("drover-cluster", apply, `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:machineGlobalConfig":{"f:cni":{}}}}`)
	status := entry("rancher", update, `{"f:status":{"f:ready":{}}}`)
	status.Subresource = "status"
	other := entry("rancher", update, `{"f:spec":{"f:registries":{}}}`)
	other.APIVersion = "rke.cattle.io/v2"
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		// want are the fields of the entries, in their order; nil for no change.
		want []string
	}{
		"none":                {nil, nil},
		"of the hub alone":    {[]metav1.ManagedFieldsEntry{own, entry("drover-rkecontrolplane", update, `{"f:spec":{"f:a":{}}}`)}, nil},
		"trimmed":             {[]metav1.ManagedFieldsEntry{entry("trimmed", update, `{}`)}, nil},
		"not applied yet":     {[]metav1.ManagedFieldsEntry{entry("rancher", update, `{"f:spec":{"f:a":{}}}`)}, nil},
		"metadata alone":      {[]metav1.ManagedFieldsEntry{own, entry("rancher", update, `{"f:metadata":{"f:finalizers":{}}}`), status}, nil},
		"of another version":  {[]metav1.ManagedFieldsEntry{own, other}, nil},
		"of an unmanaged one": {[]metav1.ManagedFieldsEntry{own, entry("rancher", update, `{"f:spec":{".":{},"f:unmanagedConfig":{}}}`)}, nil},
		"all": {[]metav1.ManagedFieldsEntry{entry("rancher", update, `{"f:spec":{".":{},"f:registries":{".":{},"f:mirrors":{}},`+
			`"f:machineGlobalConfig":{"f:cni":{},"f:debug":{}},"f:unmanagedConfig":{}},"f:metadata":{"f:finalizers":{}}}`), own, status},
			[]string{`{"f:metadata":{"f:finalizers":{}},"f:spec":{".":{},"f:unmanagedConfig":{}}}`,
				`{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:machineGlobalConfig":{"f:cni":{},"f:debug":{}},"f:registries":{".":{},"f:mirrors":{}}}}`,
				`{"f:status":{"f:ready":{}}}`}},
		"the specification alone": {[]metav1.ManagedFieldsEntry{own, entry("rancher", update, `{"f:spec":{"f:etcd":{}}}`)},
			[]string{`{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:etcd":{},"f:machineGlobalConfig":{"f:cni":{}}}}`}},
	} {
		got, err := withoutRancher(tc.entries)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var fields []string
		for _, e := range got {
			fields = append(fields, e.FieldsV1.GetRawString())
		}
		if diff := cmp.Diff(tc.want, fields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := own.FieldsV1.GetRawString(); got != `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:machineGlobalConfig":{"f:cni":{}}}}` {
		t.Errorf("the entries of before were changed: %s", got)
	}
}

// TestPoolWithoutRancher: the hub owns the annotations of the template of a pool, and Rancher neither anything of the specification nor
// what the hub owns.
func TestPoolWithoutRancher(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	entry := func(manager, version string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "cluster.x-k8s.io/" + version,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	own := entry("drover-cluster", "v1beta2", apply, `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:replicas":{}}}`)
	other := entry("manager", "v1beta2", update, `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:b":{}}}}}}`)
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		// want are the fields of the entries, in their order; nil for no change.
		want []string
	}{
		"of the hub alone": {[]metav1.ManagedFieldsEntry{own, other}, nil},
		"trimmed":          {[]metav1.ManagedFieldsEntry{entry("trimmed", "v1beta2", update, `{}`)}, nil},
		"not applied yet":  {[]metav1.ManagedFieldsEntry{entry("rancher", "v1beta1", update, `{"f:spec":{"f:replicas":{}}}`)}, nil},
		"taken before": {[]metav1.ManagedFieldsEntry{own, entry("rancher", "v1beta1", update,
			`{"f:metadata":{"f:annotations":{"f:objectset.rio.cattle.io/id":{}}}}`)}, nil},
		"all": {[]metav1.ManagedFieldsEntry{entry("rancher", "v1beta1", update, `{"f:metadata":{"f:annotations":{"f:c":{}},`+
			`"f:labels":{"f:a":{}}},"f:spec":{"f:strategy":{"f:type":{}},"f:template":{"f:metadata":{"f:annotations":{".":{},"f:b":{}},`+
			`"f:labels":{"f:d":{}}}}}}`), own, other},
			[]string{`{"f:metadata":{"f:annotations":{"f:c":{}}}}`,
				`{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:replicas":{},"f:template":{"f:metadata":{"f:annotations":{"f:b":{}}}}}}`,
				`{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:b":{}}}}}}`}},
		"the specification alone": {[]metav1.ManagedFieldsEntry{entry("rancher", "v1beta1", update, `{"f:spec":{"f:strategy":{}}}`), own},
			[]string{`{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:replicas":{}}}`}},
	} {
		got, err := poolWithoutRancher(tc.entries)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var fields []string
		for _, e := range got {
			fields = append(fields, e.FieldsV1.GetRawString())
		}
		if diff := cmp.Diff(tc.want, fields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
