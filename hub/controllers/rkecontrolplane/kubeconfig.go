package rkecontrolplane

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/endpoint"
	"github.com/drover-dev/drover/hub/access/kubeconfig"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// renewBefore is how long before its end the client certificate of a kubeconfig is renewed.
const renewBefore = 180 * 24 * time.Hour

// reasonWaitingForAddress is the reason of KubeconfigReadyCondition while no control plane node has a known address. It is API.
const reasonWaitingForAddress = "WaitingForAddress"

// ensureKubeconfig keeps the Secret <cluster>-kubeconfig, by which Cluster API, this hub and users reach the cluster. One that the
// RKEControlPlane does not own is left alone, and only checked for what the hub refuses to use: that of another cluster, for instance. That
// of Rancher is replaced.
func (r *Reconciler) ensureKubeconfig(ctx context.Context, s *scope) (reterr error) {
	defer func() { s.kubeconfigRead = reterr == nil }()
	name := s.secretName(secret.Kubeconfig)
	found := &corev1.Secret{}
	err := r.Cache.Get(ctx, s.key(name), found)
	switch {
	case apierrors.IsNotFound(err):
		return r.createKubeconfig(ctx, s, name)
	case err != nil:
		return fmt.Errorf("reading the kubeconfig Secret: %w", err)
	case !metav1.IsControlledBy(found, s.controlPlane):
		if ofRancher, err := r.isKubeconfigOfRancher(ctx, s, found); err != nil || ofRancher {
			if err == nil {
				err = r.replaceKubeconfig(ctx, s, found)
			}
			return err
		}
		refusal, err := kubeconfig.Check(ctx, r.Client, found, s.cluster)
		if refusal != "" {
			s.kubeconfig = rollout.Wait{Reason: reasons.KubeconfigRefused, Message: refusal}
		}
		return err
	}
	to, err := r.chooseEndpoint(ctx, s, found)
	if err != nil {
		return err
	}
	if to.Server == "" && !to.Tunnel {
		r.reconnect(ctx, s, found)
		return r.Access.Revoke(ctx, found.Data[secret.KubeconfigDataName], s.management)
	}
	if to.Reason != "" {
		ctrl.LoggerFrom(ctx).Info("Switching the endpoint of the kubeconfig", "reason", to.Reason, "server", to.Server, "tunnel", to.Tunnel)
		metav1.SetMetaDataAnnotation(&found.ObjectMeta, rkev1.KubeconfigMovedAnnotation, r.Now().UTC().Format(time.RFC3339))
	}
	return r.writeKubeconfig(ctx, s, found, to)
}

// createKubeconfig prefers a server. A cluster whose servers are unknown, such as an imported one, is reached through its tunnel.
func (r *Reconciler) createKubeconfig(ctx context.Context, s *scope, name string) error {
	servers, wait := s.servers()
	to := endpoint.Choice{Tunnel: r.Access.Connected(s.management)}
	if len(servers) > 0 {
		to = endpoint.Choice{Server: servers[0].URLs[0]}
	}
	if to.Server == "" && !to.Tunnel {
		s.kubeconfig = wait
		return nil
	}
	return r.writeKubeconfig(ctx, s, s.ownSecret(name, clusterv1.ClusterSecretType, nil), to)
}

// chooseEndpoint returns where an existing kubeconfig is to lead; without Server and Tunnel it stays as it is. One that has to be renewed
// leads where it did, with a zero Reason.
func (r *Reconciler) chooseEndpoint(ctx context.Context, s *scope, found *corev1.Secret) (endpoint.Choice, error) {
	servers, wait := s.servers()
	raw := found.Data[secret.KubeconfigDataName]
	state := endpoint.State{
		Cluster: client.ObjectKeyFromObject(s.controlPlane), Tunnel: r.Access.UsesTunnel(raw,
			s.management), AgentConnected: r.Access.Connected(s.management),
		Initialized: isInitialized(s.controlPlane), LastSwitched: lastSwitched(found),
		Targets: endpoint.Targets{Servers: servers, Management: s.management, Administrator: s.administrator()},
	}
	if s.serverCA != nil {
		state.CA = s.serverCA.pair.CertPEM()
	}
	if s.clientCA != nil {
		state.ClientCA = s.clientCA.pair
	}
	if !state.Tunnel && wait == (rollout.Wait{}) {
		if state.Current = s.currentServer(raw, endpoint.URLs(servers), r.Now()); state.Current == "" {
			return endpoint.Choice{Server: servers[0].URLs[0]}, nil
		}
	}
	if r.ClusterCache != nil {
		health := r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(s.cluster))
		state.Health = &health
	}
	choice := r.endpoints.Choose(state)
	s.requeue(choice.RequeueAfter)
	s.setMismatch(choice.Mismatch, state.Tunnel)
	if state.Tunnel && choice.Server == "" {
		good, err := r.Access.Good(ctx, raw, s.management, s.administrator())
		choice.Tunnel = err == nil && !good
		return choice, err
	}
	return choice, nil
}

// setMismatch says that the cluster has other certificate authorities than the hub. What the servers say of theirs is not trusted, and not
// repeated: who replaces them gives them to the hub. A cluster that is reached through its tunnel is ready nevertheless.
func (s *scope) setMismatch(m endpoint.Mismatch, tunnel bool) {
	if m.Server == "" {
		return
	}
	server, client := s.secretName(secret.ClusterCA), s.secretName(clientCAPurpose)
	text := fmt.Sprintf("Server %s presents a certificate that is not of the certificate authority in Secret %s. If the cluster's "+
		"certificate authorities were replaced, put server-ca.crt and server-ca.key of a server (<data-dir>/server/tls) into tls.crt and "+
		"tls.key of that Secret, and client-ca.crt and client-ca.key into Secret %s; otherwise something else answers at that address",
		m.Server, server, client)
	if m.Client {
		text = fmt.Sprintf("Server %s refuses client certificates of the certificate authority in Secret %s. If the cluster's certificate "+
			"authorities were replaced, put client-ca.crt and client-ca.key of a server (<data-dir>/server/tls) into tls.crt and tls.key of that "+
			"Secret", m.Server, client)
	}
	if tunnel {
		s.kubeconfigNote = text + ". Until then, the cluster is reached through its tunnel"
		return
	}
	s.kubeconfig = rollout.Wait{Reason: reasons.CertificateAuthorityMismatch, Message: text}
}

// lastSwitched is when a kubeconfig was last switched to another endpoint; zero for never.
func lastSwitched(found *corev1.Secret) time.Time {
	at, _ := time.Parse(time.RFC3339, found.Annotations[rkev1.KubeconfigMovedAnnotation]) // zero if it cannot be parsed
	return at
}

// writeKubeconfig creates or updates the Secret, which is the caller's own copy.
func (r *Reconciler) writeKubeconfig(ctx context.Context, s *scope, found *corev1.Secret, to endpoint.Choice) (err error) {
	var value []byte
	if to.Tunnel {
		if outdated, err := r.isOutdated(ctx, found); err != nil || outdated {
			return err
		}
		value, err = r.Access.Kubeconfig(ctx, s.clusterName(), s.management, s.administrator())
	} else {
		value, err = s.newKubeconfig(to.Server)
	}
	if err != nil {
		return err
	}
	found.Data = map[string][]byte{secret.KubeconfigDataName: value}
	if found.ResourceVersion == "" {
		err = r.Client.Create(ctx, found, fieldOwner)
	} else {
		err = r.Client.Update(ctx, found, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("writing the kubeconfig Secret: %w", err)
	}
	return nil
}

// isOutdated reports whether the API server has another version of a Secret than the cache, or one that the cache has not. Then no token is
// created for it: the watch brings another reconcile.
func (r *Reconciler) isOutdated(ctx context.Context, found *corev1.Secret) (bool, error) {
	live := &corev1.Secret{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(found), live); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	return live.ResourceVersion != found.ResourceVersion, nil
}

// servers are the servers of the cluster's API, best first, or why there is none.
func (s *scope) servers() ([]endpoint.Server, rollout.Wait) {
	if s.clientCA == nil || s.serverCA == nil {
		return nil, rollout.Wait{Reason: reasons.NoCertificateAuthority,
			Message: fmt.Sprintf("The cluster has created its own certificate authorities. "+
				"Put its server CA into Secret %s and its client CA into Secret %s, each with tls.crt and tls.key, or a kubeconfig into Secret %s",
				s.secretName(secret.ClusterCA), s.secretName(clientCAPurpose), s.secretName(secret.Kubeconfig))}
	}
	if e := s.endpoint(); e.Host != "" {
		port := int(e.Port)
		if port == 0 {
			port = render.APIPort(s.inputs)
		}
		return []endpoint.Server{{URLs: []string{apiURL(e.Host, port)}}}, rollout.Wait{}
	}
	servers, serving := s.apiServers(render.APIPort(s.inputs))
	switch {
	case len(servers) > 0:
		return servers, rollout.Wait{}
	case serving:
		return nil, rollout.Wait{Reason: reasonWaitingForAddress, Message: "Waiting for the address of a control plane node"}
	}
	return nil, rollout.Wait{Reason: reasons.WaitingForControlPlane,
		Message: "Waiting for the first control plane node to serve the Kubernetes API"}
}

// currentServer returns the server that a kubeconfig leads to, if it is one of the given ones, the kubeconfig trusts the cluster's CA, and
// has a client certificate that need not be renewed; empty otherwise.
func (s *scope) currentServer(raw []byte, servers []string, now time.Time) string {
	config, err := kubeconfig.Load(raw)
	if err != nil {
		return ""
	}
	name := s.clusterName()
	cluster, user := config.Clusters[name], config.AuthInfos[name+"-admin"]
	if cluster == nil || user == nil || !slices.Contains(servers, cluster.Server) ||
		!bytes.Equal(cluster.CertificateAuthorityData, s.serverCA.pair.CertPEM()) {
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
		return nil, fmt.Errorf("creating a kubeconfig: %w", err)
	}
	// kubeadm has one CA for servers and clients, these clusters have two.
	config.Clusters[name].CertificateAuthorityData = s.serverCA.pair.CertPEM()
	value, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return value, nil
}
