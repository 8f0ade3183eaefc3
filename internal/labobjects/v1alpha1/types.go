// Package v1alpha1 is the API of the laboratory: the group lab.drydock.dev, by which a
// cluster is broken on purpose and mended again.
//
//	Fault      meets calls, or components, with a fate
//	NodeFault  does something to a node
//	Clock      moves the cluster's time; there is one, called cluster
//
// A Fault and most NodeFaults are in force for as long as they exist: their deletion
// heals, and a finalizer keeps the object until that is done. All three are cluster
// scoped. They survive the cluster's process and are in force again before its next
// start runs anything. [Install] makes their CustomResourceDefinitions.
package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
)

// Finalizer keeps an object until what it broke is whole again.
const Finalizer = lab.Group + "/heal"

// InForce is the condition of all three kinds. Its reason says more when it is false.
const InForce = "InForce"

// CompletedCondition is the condition of a NodeFault that is done once, in place of InForce.
const CompletedCondition = "Completed"

// Reasons of the condition InForce.
const (
	ReasonInForce   = "InForce"
	ReasonSpent     = "Spent"   // a Fault has fired as often as it was to
	ReasonInvalid   = "Invalid" // it cannot be carried out as it is written
	ReasonNoNode    = "NoSuchNode"
	ReasonConflict  = "Conflict" // an older NodeFault says otherwise, or is in the way
	ReasonFailed    = "Failed"   // the cluster could not do it; it is tried again
	ReasonWorking   = "Working"  // it is being done
	ReasonCompleted = "Completed"
	ReasonBackwards = "Backwards" // a clock never goes back
	ReasonHealing   = "Healing"
	ReasonReleased  = "Released" // a Fault that held calls holds none any more
)

// Phase is the condition in a word, for people.
type Phase string

// The phases.
const (
	Armed     Phase = "Armed"     // a Fault is in force and has not fired
	Fired     Phase = "Fired"     // it has fired and will again
	Holding   Phase = "Holding"   // it holds calls at this moment
	Spent     Phase = "Spent"     // it has fired as often as it was to
	Released  Phase = "Released"  // it holds nothing any more
	Active    Phase = "Active"    // a NodeFault is in force
	Working   Phase = "Working"   // it is being done
	Waiting   Phase = "Waiting"   // another one is in the way
	Completed Phase = "Completed" // of those that are done once
	Healing   Phase = "Healing"   // it is deleted, and what it broke is being mended
	Refused   Phase = "Refused"   // it cannot be carried out; the condition says why
)

// Fault meets calls with a fate.
type Fault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              FaultSpec   `json:"spec"`
	Status            FaultStatus `json:"status,omitzero"`
}

// FaultSpec says which calls, and what becomes of them.
type FaultSpec struct {
	Match  Match      `json:"match"`
	Action lab.Action `json:"action"`
	// Code answers fail, and late-ok of a CSI call.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay of the action delay.
	Delay *metav1.Duration `json:"delay,omitempty"`
	// RestartAfter of the action kill: without it the component stays down until the fault is deleted.
	RestartAfter *metav1.Duration `json:"restartAfter,omitempty"`
	Skip         int              `json:"skip,omitempty"`
	Times        int              `json:"times,omitempty"`
	Percent      int              `json:"percent,omitempty"`
	Seed         int64            `json:"seed,omitempty"`
	// Released lets go what it holds, and holds nothing any more.
	Released bool `json:"released,omitempty"`
}

// Match is about calls. Texts are shell patterns; empty ones match everything.
type Match struct {
	Call      lab.Kind `json:"call"`
	Op        string   `json:"op,omitempty"`
	Component string   `json:"component,omitempty"`
	Node      string   `json:"node,omitempty"`
	Volume    string   `json:"volume,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
}

// FaultStatus is what a fault has done.
type FaultStatus struct {
	Phase              Phase              `json:"phase,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Seen               int                `json:"seen,omitempty"`
	Fired              int                `json:"fired"`
	Held               int                `json:"held,omitempty"`
	FirstFired         *metav1.Time       `json:"firstFired,omitempty"`
	LastFired          *metav1.Time       `json:"lastFired,omitempty"`
	LastCall           string             `json:"lastCall,omitempty"`
	Killed             []string           `json:"killed,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// FaultList is a list of faults.
type FaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Fault `json:"items"`
}

// NodeAction is what a NodeFault does.
type NodeAction string

// The actions. The first ones last as long as the object; the last two are done once.
const (
	KubeletStopped NodeAction = "KubeletStopped" // stopped in order; volumes stay mounted
	KubeletKilled  NodeAction = "KubeletKilled"  // as by kill -9
	PoweredOff     NodeAction = "PoweredOff"     // mounts and devices gone, unsynced data lost, files kept
	Partitioned    NodeAction = "Partitioned"    // the kubelet does not reach the API server
	SlowAPI        NodeAction = "SlowAPI"        // each of the kubelet's requests takes longer by spec.delay
	ClockSkewed    NodeAction = "ClockSkewed"    // the node's clock is wrong by spec.skew
	RestartKubelet NodeAction = "RestartKubelet"
	Reboot         NodeAction = "Reboot"
)

// NodeActions lists them.
func NodeActions() []NodeAction {
	return []NodeAction{KubeletStopped, KubeletKilled, PoweredOff, Partitioned, SlowAPI, ClockSkewed, RestartKubelet, Reboot}
}

// Once tells whether the action is done and over, in contrast to lasting.
func (a NodeAction) Once() bool { return a == RestartKubelet || a == Reboot }

// DefaultDelay is of SlowAPI without a delay.
const DefaultDelay = time.Second

// NodeFault does something to a node.
type NodeFault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NodeFaultSpec   `json:"spec"`
	Status            NodeFaultStatus `json:"status,omitzero"`
}

// NodeFaultSpec says what is done to which node.
type NodeFaultSpec struct {
	Node   string           `json:"node"`
	Action NodeAction       `json:"action"`
	Delay  *metav1.Duration `json:"delay,omitempty"`
	Skew   *metav1.Duration `json:"skew,omitempty"`
}

// NodeFaultStatus is how far it is.
type NodeFaultStatus struct {
	Phase              Phase `json:"phase,omitempty"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Started is when it took force, or when what is done once was begun.
	Started    *metav1.Time       `json:"started,omitempty"`
	Completed  *metav1.Time       `json:"completed,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeFaultList is a list of node faults.
type NodeFaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeFault `json:"items"`
}

// ClockName is the name of the one Clock.
const ClockName = "cluster"

// Clock is the cluster's time: real time and what it was advanced by.
type Clock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ClockSpec   `json:"spec"`
	Status            ClockStatus `json:"status,omitzero"`
}

// ClockSpec says how far the clock is to be ahead of real time. It never goes back.
type ClockSpec struct {
	Offset metav1.Duration `json:"offset"`
}

// ClockStatus is how far the clock is ahead.
type ClockStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Offset             metav1.Duration    `json:"offset"`
	Advanced           *metav1.Time       `json:"advanced,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// ClockList is a list of clocks.
type ClockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Clock `json:"items"`
}
