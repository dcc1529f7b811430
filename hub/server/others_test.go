package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestOthers: a hub ends when a program is installed that works with the same objects, and does not start beside one.
func TestOthers(t *testing.T) {
	for _, tt := range []struct {
		namespace, name string
		replicas        *int32
		opts            Options
		want            error
	}{
		{namespace: "capi-system", name: "capi-controller-manager", want: capi.ErrInstalled},
		{namespace: "cattle-capi-system", name: "capi-controller-manager", want: capi.ErrInstalled},
		{namespace: "cattle-provisioning-capi-system", name: "capi-controller-manager", want: capi.ErrInstalled},
		{namespace: "drover-system", name: "capi-controller-manager",
			opts: Options{Settings: settings.Settings{SystemNamespace: "drover-system"}}, want: capi.ErrInstalled},
		{namespace: "capi-system", name: "capi-controller-manager", opts: Options{ExternalCAPI: true}},
		{namespace: "capv-system", name: "capv-controller-manager"},
		{namespace: "cattle-system", name: "rancher", want: errRancher},
		{namespace: "cattle-system", name: "rancher", opts: Options{ExternalCAPI: true}, want: errRancher},
		{namespace: "cattle-system", name: "rancher", opts: Options{Providers: provider.Set{provider.Bootstrap}}, want: errRancher},
		{namespace: "cattle-system", name: "rancher", opts: Options{Providers: provider.Set{provider.Infrastructure}}, want: errRancher},
		{namespace: "capi-system", name: "capi-controller-manager", opts: Options{Providers: provider.Set{provider.Infrastructure}}},
		{namespace: "cattle-system", name: "rancher", replicas: new(int32(0))},
		{namespace: "cattle-system", name: "rancher", replicas: new(int32(1)), want: errRancher},
		{namespace: "cattle-system", name: "cattle-cluster-agent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, appsv1.AddToScheme)).Build()
			if err := checkOthers(t.Context(), c, tt.opts); err != nil {
				t.Errorf("in an empty cluster: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- (&others{c, tt.opts}).Start(ctx) }()
			time.Sleep(10 * othersInterval)
			installed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Name: tt.name},
				Spec: appsv1.DeploymentSpec{Replicas: tt.replicas}}
			if err := c.Create(ctx, installed); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * othersInterval)
			cancel()
			for when, err := range map[string]error{"a running hub": <-ended, "a start": checkOthers(t.Context(), c, tt.opts)} {
				if !errors.Is(err, tt.want) {
					t.Errorf("%s beside %s: got %v, want %v", when, client.ObjectKeyFromObject(installed), err, tt.want)
				}
			}
		})
	}
}
