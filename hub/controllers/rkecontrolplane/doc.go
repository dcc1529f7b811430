// Package rkecontrolplane reconciles RKEControlPlanes: it reads the cluster once from the cache, keeps the cluster's tokens, certificate
// authorities and kubeconfig, has hub/plan/render render the plan of each machine and hub/plan/rollout decide which are delivered now, and
// delivers those. What it waits for is in the conditions of RKEControlPlane, RKEBootstrap and Machine. It writes nothing where nothing has
// changed.
//
// # The plan Secret
//
// A machine's plan Secret has several writers. Each writes only what is its own, and its update fails on a conflict with the others. The
// names are packages of hub/controllers, "gateway" (hub/gateway), "agent" (the system-agent, whose keys the gateway checks), and "user" for
// people and programs that are no part of the hub. What plansecret writes of an applied plan, the gateway writes with the report that the
// plan is applied (plansecret.Settle).
//
//	data        plan                                   rkecontrolplane
//	data        plan-signature                         rkecontrolplane
//	data        max-failures                           rkecontrolplane
//	data        failure-threshold                      rkecontrolplane
//	data        probe-period-seconds                   user
//	data        plan-state                             rkecontrolplane, plansecret, agent
//	data        probe-statuses                         rkecontrolplane, agent
//	data        appliedPlan                            plansecret
//	data        applied-checksum                       agent
//	data        applied-output                         agent
//	data        applied-periodic-output                agent
//	data        failed-checksum                        agent
//	data        failed-output                          agent
//	data        failure-count                          agent
//	data        success-count                          agent
//	data        last-apply-time                        agent
//	data        plan-revision                          agent
//	data        plan-checkpoint                        agent
//	data        plan-progress                          agent
//	data        agent-upgrade                          agentupgrade
//	data        agent-status                           agent
//	label       rke.cattle.io/init-node                rkecontrolplane
//	label       all others                             rkebootstrap
//	annotation  rke.cattle.io/join-url                 rkecontrolplane
//	annotation  rke.cattle.io/joined-to                rkecontrolplane
//	annotation  rke.cattle.io/reported-join-address    rkecontrolplane
//	annotation  rke.cattle.io/infrastructure-addresses rkecontrolplane
//	annotation  rke.cattle.io/node-labels              rkecontrolplane
//	annotation  rke.cattle.io/plan-last-updated        rkecontrolplane
//	annotation  rke.cattle.io/plan-probes-passed       rkecontrolplane, plansecret
//	annotation  rke.cattle.io/plan-replaced            rkecontrolplane
//	annotation  rke.cattle.io/plan-restarts            rkecontrolplane
//	annotation  rke.cattle.io/plan-retry               plansecret
//	annotation  rke.cattle.io/snapshot-checksums       rkecontrolplane
//	annotation  rke.cattle.io/bootstrap-token-hash     rkebootstrap
//	annotation  rke.cattle.io/agent-last-seen          gateway
//	annotation  rke.cattle.io/drain-options            rkecontrolplane, nodedrain
//	annotation  rke.cattle.io/uncordon                 rkecontrolplane, nodedrain
//	annotation  rke.cattle.io/pre-drain                nodedrain
//	annotation  rke.cattle.io/post-drain               nodedrain
//	annotation  rke.cattle.io/drain-done               nodedrain
//	annotation  rke.cattle.io/drain-error              nodedrain
//	annotation  rke.cattle.io/drain-waiting            nodedrain
//	annotation  rke.cattle.io/drain-began              nodedrain
//	annotation  rke.cattle.io/drain-cordoned           nodedrain
//	annotation  rke.cattle.io/join-url-autoset-disabled user
//	annotation  plan.cattle.io/paused                  user
//	annotation  plan.cattle.io/canceled                user
//
// rkebootstrap also copies annotations of the RKEBootstrap that are none of these. The conditions that follow from a plan are on the
// Machine, SystemAgentUpgraded on the RKEBootstrap, too, and NodeSynced there alone:
//
//	condition   PlanApplied                            plansecret
//	condition   SystemAgentUpgraded                    agentupgrade
//	condition   Reconciled                             rkecontrolplane
//	condition   UpToDate                               rkecontrolplane
//	condition   EtcdMemberRemoved                      preterminatehook
//	condition   NodeSynced                             nodesync
package rkecontrolplane
