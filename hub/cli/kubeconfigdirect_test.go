package cli

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// TestManagementNameWithoutRights: users of a cluster that was written for Cluster API need no rights on Clusters of
// provisioning.cattle.io. All others read which right is missing.
func TestManagementNameWithoutRights(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "demo"}
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	}
	for name, test := range map[string]struct {
		key     client.ObjectKey
		mayList bool
		want    string
		err     string
	}{
		"with list":     {key: key, mayList: true, want: "c-m-abcdefgh"},
		"there is none": {key: client.ObjectKey{Namespace: "ns", Name: "other"}, mayList: true, err: "reading Cluster ns/other"},
		"no rights":     {key: key, err: "reading Cluster ns/demo"},
	} {
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, managementv3.AddToScheme)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&managementv3.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh", Labels: ownership.Labels(key)},
		}).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return forbidden("clusters.provisioning")
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if !test.mayList {
					return forbidden("clusters.management")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
		got, err := managementName(t.Context(), c, test.key)
		switch {
		case got != test.want, (err == nil) != (test.err == ""):
			t.Errorf("%s: got %q, %v", name, got, err)
		case err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: got %v, want %s", name, err, test.err)
		}
	}
}

// TestManagementNameOfNoCluster: who misspells the name of a Cluster is not referred to an administrator.
func TestManagementNameOfNoCluster(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, managementv3.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters.management"}, "", nil)
		},
	}).Build()
	_, err := managementName(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "dmeo"})
	if err == nil || !strings.Contains(err.Error(), "there is no Cluster ns/dmeo of provisioning.cattle.io") || apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// TestAuthorityWithoutRights: who may not read the Secret of the authority is not sent for a right that gives away its private key, without
// hearing of the other way.
func TestAuthorityWithoutRights(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "demo-ca", nil)
		},
	}).Build()
	_, err := serverCA(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "demo"})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "private key") || !strings.Contains(err.Error(), "caCerts") {
		t.Errorf("got %v", err)
	}
}
