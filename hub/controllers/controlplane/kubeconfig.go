package controlplane

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/kubeconfig"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
)

// renewBefore is how long before its end the client certificate of a kubeconfig is renewed.
const renewBefore = 180 * 24 * time.Hour

// The reasons why there is no kubeconfig.
const (
	reasonWaitingForControlPlane = "WaitingForControlPlane"
	reasonNoAuthority            = "NoCertificateAuthority"
	reasonWaitingForAddress      = "WaitingForAddress"
	reasonKubeconfigRefused      = "KubeconfigRefused"
)

// ensureKubeconfig keeps the Secret by which Cluster API, this hub and users reach the cluster. A Secret that is not the RKEControlPlane's
// is left alone: somebody else provides for it, and is told where the hub does not open it.
func (r *Reconciler) ensureKubeconfig(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: secret.Name(s.clusterName(), secret.Kubeconfig)}
	found := &corev1.Secret{}
	err := r.Cache.Get(ctx, key, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	missing := apierrors.IsNotFound(err)
	if !missing && !metav1.IsControlledBy(found, s.controlPlane) {
		if err := kubeconfig.Check(found); err != nil {
			s.kubeconfig = rollout.Wait{Reason: reasonKubeconfigRefused, Message: err.Error()}
		}
		return nil
	}
	if missing {
		found = nil
	}
	to, err := r.chooseWay(ctx, s, found)
	if err != nil {
		return err
	}
	if to == (way{}) {
		if !missing {
			r.follow(ctx, s, found)
			return r.Access.Revoke(ctx, found.Data[secret.KubeconfigDataName], s.management)
		}
		return nil
	}
	if missing {
		found = s.ownSecret(key.Name, clusterv1.ClusterSecretType)
	}
	return r.writeKubeconfig(ctx, s, found, to, missing)
}

// writeKubeconfig writes a Secret, which is the caller's own copy, so that it leads to the cluster in another way.
func (r *Reconciler) writeKubeconfig(ctx context.Context, s *scope, found *corev1.Secret, to way, missing bool) error {
	var value []byte
	var err error
	if to.tunnel {
		if stale, err := r.isStale(ctx, found, missing); err != nil || stale {
			return err
		}
		value, err = r.Access.Kubeconfig(ctx, s.clusterName(), s.management, s.administrator())
	} else {
		value, err = s.newKubeconfig(to.server)
	}
	if err != nil {
		return err
	}
	if to.instead {
		metav1.SetMetaDataAnnotation(&found.ObjectMeta, rkev1.KubeconfigMovedAnnotation, r.Now().UTC().Format(time.RFC3339))
	}
	found.Data = map[string][]byte{secret.KubeconfigDataName: value}
	if missing {
		err = r.Client.Create(ctx, found, fieldOwner)
	} else {
		err = r.Client.Update(ctx, found, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("writing the kubeconfig Secret: %w", err)
	}
	return nil
}

// isStale tells whether the cache is behind with a Secret, perhaps behind what this controller has written itself. Then no token is made for
// it: the Secret as it is brings another pass.
func (r *Reconciler) isStale(ctx context.Context, found *corev1.Secret, missing bool) (bool, error) {
	live := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(found), live)
	if apierrors.IsNotFound(err) {
		return !missing, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	return missing || live.ResourceVersion != found.ResourceVersion, nil
}

// servers are where the cluster's API may be reached, best first, or why there is none.
func (s *scope) servers() ([]apiServer, rollout.Wait) {
	if s.clientCA == nil || s.serverCA == nil {
		return nil, rollout.Wait{Reason: reasonNoAuthority, Message: fmt.Sprintf("The cluster has made its own certificate authorities. "+
			"Put its server CA into Secret %s and its client CA into Secret %s, each with tls.crt and tls.key, or a kubeconfig into Secret %s",
			secret.Name(s.clusterName(), secret.ClusterCA), secret.Name(s.clusterName(), clientCAPurpose), secret.Name(s.clusterName(), secret.Kubeconfig))}
	}
	if e := s.endpoint(); e.Host != "" {
		port := int(e.Port)
		if port == 0 {
			port = render.APIPort(s.inputs)
		}
		return []apiServer{{urls: []string{apiURL(e.Host, port)}}}, rollout.Wait{}
	}
	servers, working := s.apiServers(render.APIPort(s.inputs))
	switch {
	case len(servers) > 0:
		return servers, rollout.Wait{}
	case working:
		return nil, rollout.Wait{Reason: reasonWaitingForAddress, Message: "Waiting for the address of a control plane node"}
	}
	return nil, rollout.Wait{Reason: reasonWaitingForControlPlane, Message: "Waiting for the first control plane node to serve the Kubernetes API"}
}

// servesAPI tells whether the machine was seen to serve the Kubernetes API.
func (m *machine) servesAPI() bool {
	_, probed := m.report.Delivered.Probes[render.APIServerProbe]
	return probed && m.state.Progress == rollout.ProgressApplied && !slices.Contains(m.report.Unhealthy, render.APIServerProbe)
}

func apiURL(host string, port int) string {
	return (&url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}).String()
}

// current returns the server that a kubeconfig leads to, if it is one of the cluster's, the kubeconfig trusts the cluster's authority, and
// it has a client certificate that lasts; empty otherwise.
func (s *scope) current(found *corev1.Secret, servers []string, now time.Time) string {
	config, err := kubeconfig.Load(found.Data[secret.KubeconfigDataName])
	if err != nil {
		return ""
	}
	name := s.clusterName()
	cluster, ok := config.Clusters[name]
	if !ok || !slices.Contains(servers, cluster.Server) || !bytes.Equal(cluster.CertificateAuthorityData, s.serverCA.pair.CertPEM()) {
		return ""
	}
	user, ok := config.AuthInfos[name+"-admin"]
	if !ok {
		return ""
	}
	block, _ := pem.Decode(user.ClientCertificateData)
	if block == nil {
		return ""
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.CheckSignatureFrom(s.clientCA.pair.Cert) != nil || cert.NotAfter.Sub(now) <= renewBefore {
		return ""
	}
	return cluster.Server
}

// newKubeconfig has a new client certificate of a cluster administrator.
func (s *scope) newKubeconfig(server string) ([]byte, error) {
	name := s.clusterName()
	config, err := utilkubeconfig.New(name, server, s.clientCA.pair.Cert, s.clientCA.pair.Key)
	if err != nil {
		return nil, fmt.Errorf("making a kubeconfig: %w", err)
	}
	// kubeadm's clusters have one authority for both sides, these have two.
	config.Clusters[name].CertificateAuthorityData = s.serverCA.pair.CertPEM()
	value, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return value, nil
}
