// Package controlplane gives the machines of a cluster their plans. It loads the cluster once from the cache, keeps the cluster's tokens,
// certificate authorities and kubeconfig, has hub/render make each machine's plan and hub/rollout decide which may be delivered now, and
// writes those. What it waits for is in the conditions of RKEControlPlane, RKEBootstrap and Machine.
//
// It must not decide by itself what a plan says or when it is delivered, and it writes nothing where nothing has changed.
package controlplane
