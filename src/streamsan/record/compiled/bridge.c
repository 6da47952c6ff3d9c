/* Operators whose tensors come described from inside of torch's dispatcher: what `operator_look`
 * and `operator_report` do, without Python objects for the tensors. Whatever is rare is left to
 * those. */

#include "bridge.h"
#include "operator.h"

enum { WRITE = 2 };

/* The block that a tensor lies in, a new reference, reported if that was still to do; NULL where
 * none is known, or with an exception. */
static Born *
block_of(Recording *recording, const Described *described)
{
    uint64_t address = (uint64_t)(uintptr_t)described->storage;
    Born *born = blocks_at(blocks_of(recording), address);
    Py_XINCREF((PyObject *)born);
    if (born != NULL && born->number == NONE
        && report_block(recording, born, address, described->tensor.device.index,
                        (Py_ssize_t)described->bytes) < 0) {
        Py_CLEAR(born);
    }
    return born;
}

/* What torch's engine marks for the stream of a node that runs on another one than it was handed
 * out for: see Blocks.engine_records. */
static int
keep_for_mark(Recording *recording, Began *began, Born *born)
{
    int several = PyDict_GET_SIZE(recording->parts.known) > 1;
    if (!several || !began->backward || !born->backward) {
        return 0;
    }
    if (began->marks == NULL && (began->marks = PyList_New(0)) == NULL) {
        return -1;
    }
    return PyList_Append(began->marks, (PyObject *)born);
}

/* Add an access, packed where the records are. */
static int
add_access(Recording *recording, Began *began, const Extent *extent, int index, int mode,
           PyObject *argument)
{
    if (packed_of((Outlet *)recording->parts.outlet) != NULL
        && PyList_GET_SIZE(began->accesses) == 0) {
        began->packed++;
        return pack_access(&((Work *)began->work)->accesses, extent, index, mode, argument);
    }
    PyObject *made = new_access((Accesses *)recording->parts.accesses, extent, index, mode,
                                argument);
    int status = made == NULL ? -1 : PyList_Append(began->accesses, made);
    Py_XDECREF(made);
    return status;
}

/* Add the access of a device's tensor. */
static int
touch_described(Began *began, const Described *described, int mode, PyObject *argument)
{
    Recording *recording = ((Operator *)began->op)->recording;
    Extent extent;
    int index = described->tensor.device.index;
    began->device = index > began->device ? index : began->device;
    int bytes = mode ? canonical(&described->tensor, &extent) : 0;
    if (bytes <= 0) { /* below 0 are tensors of others than torch */
        return bytes;
    }
    Born *born = block_of(recording, described);
    int status = born == NULL ? -(PyErr_Occurred() != NULL) : keep_for_mark(recording, began, born);
    Py_XDECREF((PyObject *)born);
    return status < 0 ? -1 : add_access(recording, began, &extent, index, mode, argument);
}

static int
look(Operator *op, Work *work, const Arguments *arguments, Began *began)
{
    if (arguments->running.name != NULL) {
        if (meet_node(op->recording, work, arguments->running.name, arguments->running.number)) {
            return -1;
        }
        began->backward = 1;
    }
    PyObject *places = arguments->updating ? op->updating : op->places;
    for (size_t at = 0; at < arguments->count; at++) {
        const Described *described = &arguments->tensors[at];
        PyObject *place = PyList_GET_ITEM(places, described->place);
        int mode = (int)PyLong_AsLong(PyTuple_GET_ITEM(place, 2));
        if (touch_described(began, described, mode, PyTuple_GET_ITEM(place, 1)) < 0) {
            return -1;
        }
    }
    return arguments->made < 0 ? 0 : note_node(op->recording, work, arguments->made);
}

static int
has_pinned(Recording *recording)
{
    return PyDict_GET_SIZE(((Accesses *)recording->parts.accesses)->pinned) > 0;
}

static int
bridge_sees_hosts(PyObject *recording)
{
    return has_pinned((Recording *)recording);
}

/* Whether it is to be shown in Python: where memory of the host counts, or something is rare. */
static int
is_for_python(Operator *op, Work *work, int hosts)
{
    if (hosts && has_pinned(op->recording)) {
        return 1;
    }
    int rare = is_rare(op, work);
    return rare ? rare : has_untraced(op->recording);
}

static void
bridge_ask(PyObject *recording, const Current *current)
{
    ((Recording *)recording)->current = current;
}

static Beginning
bridge_begin(PyObject *object, const Arguments *arguments, Began *began)
{
    Operator *op = (Operator *)object;
    Recording *recording = op->recording;
    Beginning how = BEGIN_NOT;
    Work *work = is_on(recording) ? work_of_thread(recording) : NULL;
    int in_python = work == NULL ? -1 : is_for_python(op, work, arguments->hosts);
    if (in_python > 0) {
        how = BEGIN_IN_PYTHON;
    } else if (in_python == 0 && start(began, op, work) == 0) {
        how = BEGIN_DESCRIBED;
        if (look(op, work, arguments, began) < 0) {
            keep_failure(began);
        }
    }
    if (PyErr_Occurred()) {
        tell_error(recording);
    }
    Py_XDECREF((PyObject *)work);
    return how;
}

/* New memory of the host: what was pinned there is no more. */
static int
drop_pinned(Recording *recording, const Described *described)
{
    if (!has_pinned(recording)) {
        return 0;
    }
    PyObject *pinned = PyObject_GetAttrString(recording->parts.allocator, "pinned");
    PyObject *done = pinned == NULL
        ? NULL
        : PyObject_CallMethod(pinned, "drop", "KL", (unsigned long long)(uintptr_t)
                              described->storage, (long long)described->bytes);
    Py_XDECREF(pinned);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Add what is written of a result; memory that is left as it was is only shown, for who writes it
 * may be known by its address alone. */
static int
look_at_result(Began *began, const Described *result)
{
    Operator *op = (Operator *)began->op;
    Recording *recording = op->recording;
    if (result->tensor.device.type == DESCRIBED_HOST) {
        return drop_pinned(recording, result);
    }
    if (!op->uninitialized) {
        return touch_described(began, result, WRITE, op->result);
    }
    Py_XDECREF((PyObject *)block_of(recording, result));
    return -(PyErr_Occurred() != NULL);
}

/* Mark the blocks kept for that, where the allocator does not know of the stream yet. */
static int
mark(Began *began, long stream)
{
    Recording *recording = ((Operator *)began->op)->recording;
    PyObject *number = PyLong_FromLong(stream);
    int status = number == NULL ? -1 : 0;
    for (Py_ssize_t at = 0; status == 0 && at < PyList_GET_SIZE(began->marks); at++) {
        Born *born = (Born *)PyList_GET_ITEM(began->marks, at);
        int added = add_user(born, number);
        PyObject *done = added <= 0
            ? NULL
            : PyObject_CallMethod(recording->parts.allocator, "record_block", "lO", born->number,
                                  number);
        status = added < 0 || (added && done == NULL) ? -1 : 0;
        Py_XDECREF(done);
    }
    Py_XDECREF(number);
    return status;
}

static int
report(Began *began, const Described *results, size_t count)
{
    Operator *op = (Operator *)began->op;
    for (size_t at = 0; op->fresh && at < count; at++) {
        if (look_at_result(began, &results[at]) < 0) {
            return -1;
        }
    }
    if (PyList_GET_SIZE(began->accesses) == 0 && !began->packed) {
        return 0;
    }
    long stream = current_timeline(op->recording, began->device);
    if ((stream == -1 && PyErr_Occurred())
        || operator_emit(op, (Work *)began->work, stream, began) < 0) {
        return -1;
    }
    return began->marks == NULL ? 0 : mark(began, stream);
}

static void
bridge_done(Began *began, const Described *results, size_t count)
{
    leave(began);
    if (!has_failed(began) && report(began, results, count) < 0) {
        tell_error(((Operator *)began->op)->recording);
    }
}

static void
bridge_end(Began *began)
{
    stop(began);
    clear(began);
}

static void
bridge_note(PyObject *object, int64_t number)
{
    Recording *recording = (Recording *)object;
    Work *work = is_on(recording) ? work_of_thread(recording) : NULL;
    if (work != NULL) {
        note_node(recording, work, number);
    }
    if (PyErr_Occurred()) {
        tell_error(recording);
    }
    Py_XDECREF((PyObject *)work);
}

static void
bridge_allocated(PyObject *recording, uint64_t address)
{
    was_allocated((Recording *)recording, address);
}

static void
bridge_freed(PyObject *recording, uint64_t address)
{
    was_freed((Recording *)recording, address);
}

const Bridge bridge = {
    BRIDGE_VERSION, bridge_ask,  bridge_sees_hosts, bridge_begin, bridge_done,
    bridge_end,     bridge_note, bridge_allocated,  bridge_freed,
};
