// Package s3event, the part that is left out of versitygw: events by way of message queues, which bring along
// the clients of these.
package s3event

import "errors"

var errLeftOut = errors.New("this kind of events is left out")

func InitKafkaEventService(string, string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

func InitNatsEventService(string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

func InitRabbitmqEventService(string, string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

// Events have numbers in the order of their sending; nobody sends any.
func genSequencer() string { return "0" }
