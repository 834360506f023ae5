// Boost.JSON compiled into our own library: no shared object to ship, and position-independent for the Python
// module.
#include <boost/json/src.hpp>
