// Package planstatus watches what agents report about their plans. It keeps a copy of each plan that was applied, notes when all probes
// were healthy, sets a plan that has failed pending again after a while, and tells in the conditions of RKEBootstrap and Machine what
// became of the plan. It never changes a plan and never delivers one.
package planstatus
