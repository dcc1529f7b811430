package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestAnswerLost: an operation that was created without an answer is not taken for one that was not.
func TestAnswerLost(t *testing.T) {
	sent := func(err error) error { return &url.Error{Op: "Post", URL: "https://127.0.0.1:6443/apis", Err: err} }
	refused := sent(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "etcdsnapshotsaves"}, "", nil)
	for name, test := range map[string]struct {
		create error
		// created is set where the operation exists nevertheless; reads are the errors of the requests for it.
		created bool
		reads   []error
		err     string
		// says is true where standard error says what takes long.
		says bool
	}{
		"created":                      {create: sent(io.EOF), created: true},
		"not created":                  {create: sent(io.EOF), err: "EOF"},
		"a timeout of the API server":  {create: apierrors.NewTimeoutError("etcd is slow", 1), created: true},
		"etcd fails":                   {create: apierrors.NewInternalError(errors.New("etcdserver: request timed out")), created: true},
		"refused":                      {create: forbidden, reads: []error{refused}, err: "forbidden"},
		"the API server restarts":      {create: sent(io.EOF), created: true, reads: []error{refused, refused}},
		"the API server starts slowly": {create: sent(io.EOF), created: true, reads: slices.Repeat([]error{refused}, 10), says: true},
		"the API server stays away": {create: sent(io.EOF), reads: slices.Repeat([]error{refused}, 100), err: "may have been created",
			says: true},
		"nobody may read it":              {create: sent(io.EOF), created: true, reads: []error{forbidden}, err: "hub operation list"},
		"no connection, and no operation": {create: refused, reads: []error{forbidden}, err: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rke := provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}
				cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}, Spec: rke}
				reads := 0
				c := interceptor.NewClient(fakeAPI(t, cluster), interceptor.Funcs{
					Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
						if test.created {
							if err := c.Create(ctx, o.DeepCopyObject().(client.Object), opts...); err != nil {
								return err
							}
						}
						return test.create
					},
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if _, is := o.(operationv1.Operation); is {
							if reads++; reads <= len(test.reads) {
								return test.reads[reads-1]
							}
						}
						return c.Get(ctx, key, o, opts...)
					},
				})
				op := &operationv1.ETCDSnapshotSave{}
				var stderr strings.Builder
				err := (&operationOptions{}).create(t.Context(), &stderr, c, demoKey, op)
				if test.err == "" && (err != nil || op.UID == "" && op.ResourceVersion == "") {
					t.Errorf("got %v, %+v", err, op)
				}
				if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				want := ""
				if test.says {
					want = "hub: waiting for the hub to answer: checking if ns/ETCDSnapshotSave/" + op.Name + " was created\n"
				}
				if stderr.String() != want {
					t.Errorf("on standard error %q, want %q", stderr.String(), want)
				}
			})
		})
	}
}
